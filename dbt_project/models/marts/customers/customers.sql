{{ config(unique_key=['account_id']) }}

with accounts as (

    select * from {{ ref('int_account_totals') }}
    where count_invoices > 0

),

-- Quintiles of the accounts that may buy again. Among equals, later payers rank higher.
scores as (

    select
        account_id,
        ntile(5) over (order by last_paid_at, account_id) as recency_score,
        ntile(5) over (order by count_invoices, last_paid_at, account_id) as frequency_score,
        ntile(5) over (order by revenue, last_paid_at, account_id) as monetary_score
    from accounts
    where not is_deleted

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
        scores.recency_score,
        scores.frequency_score,
        scores.monetary_score,
        case
            when accounts.is_deleted then 'closed'
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
