{{ config(unique_key='account_id') }}

with latest as (

    select
        *,
        row_number() over (
            partition by account_id order by transacted_at desc, trans_id desc
        ) as place
    from {{ ref('stg_transactions') }}

)

select
    account_id,
    balance,
    transacted_at as changed_at
from latest
where place = 1
