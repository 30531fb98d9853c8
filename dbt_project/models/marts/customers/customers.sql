{{ config(unique_key=['account_id']) }}

with accounts as (

    select * from {{ ref('int_account_totals') }}
    where count_invoices > 0

),

scores as (

    select * from {{ ref('int_customer_scores') }}

),

final as (

    select
        accounts.account_id,
        accounts.count_users,
        accounts.first_paid_at,
        accounts.last_paid_at,
        accounts.count_invoices,
        accounts.revenue,
        accounts.count_invoices >= 2 as is_repeat,
        case when not accounts.is_deleted then scores.recency_score end as recency_score,
        case when not accounts.is_deleted then scores.frequency_score end as frequency_score,
        case when not accounts.is_deleted then scores.monetary_score end as monetary_score,
        case
            when accounts.is_deleted then 'closed'
            when scores.account_id is null then 'new'
            when scores.recency_score >= 4 and scores.frequency_score >= 4 then 'champion'
            when scores.recency_score >= 3 and scores.frequency_score >= 3 then 'loyal'
            when scores.recency_score >= 3 then 'recent'
            when scores.frequency_score >= 3 or scores.monetary_score >= 4 then 'at risk'
            else 'lapsed'
        end as segment
    from accounts
    left join scores on accounts.account_id = scores.account_id

)

select * from final
