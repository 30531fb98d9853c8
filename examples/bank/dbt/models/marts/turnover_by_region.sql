{{ config(unique_key=['month', 'region']) }}

select
    date_trunc('MONTH', transactions.transacted_at) as month,
    coalesce(districts.region, 'unknown') as region,
    count(*) as count_transactions,
    sum(if(transactions.type = 'Credit', transactions.amount, 0)) as credited,
    sum(if(transactions.type = 'Debit', transactions.amount, 0)) as debited
from {{ ref('stg_transactions') }} as transactions
left join {{ ref('stg_districts') }} as districts
    on transactions.district_id = districts.district_id
group by 1, 2
