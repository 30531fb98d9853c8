{{ config(unique_key=['account_id']) }}

with accounts as (

    select * from {{ ref('int_account_totals') }}

),

-- Quintiles of the accounts that may buy again. Among equals, later payers rank higher.
final as (

    select
        account_id,
        ntile(5) over (order by last_paid_at, account_id) as recency_score,
        ntile(5) over (order by count_invoices, last_paid_at, account_id) as frequency_score,
        ntile(5) over (order by revenue, last_paid_at, account_id) as monetary_score
    from accounts
    where count_invoices > 0 and not is_deleted

)

select * from final
