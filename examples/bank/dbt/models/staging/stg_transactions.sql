{{ config(unique_key='trans_id') }}

select
    ---------- ids
    trans_id,
    account_id,
    customer_id,
    account.district_id,

    ---------- text
    type,
    operation,

    ---------- numerics
    amount,
    balance,

    ---------- timestamps
    fulldatewithtime as transacted_at
from {{ source('silver', 'enriched_transactions') }}
