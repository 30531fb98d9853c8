-- Fails if days, accounts and months do not add up to the same revenue.
with days as (

    select coalesce(sum(revenue), 0) as revenue from {{ ref('sales_by_day') }}

),

accounts as (

    select coalesce(sum(revenue), 0) as revenue from {{ ref('int_account_totals') }}

),

months as (

    select coalesce(sum(first_revenue + repeat_revenue + refunds), 0) as revenue
    from {{ ref('repeat_purchases') }}

)

select
    days.revenue as revenue_of_days,
    accounts.revenue as revenue_of_accounts,
    months.revenue as revenue_of_months
from days
cross join accounts
cross join months
where days.revenue != accounts.revenue or days.revenue != months.revenue
