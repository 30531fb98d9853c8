{{ config(unique_key='trans_id') }}

select
    trans_id,
    account_id,
    customer_id,
    operation,
    amount,
    transacted_at
from {{ ref('stg_transactions') }}
where type = 'Credit'
