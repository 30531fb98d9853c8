{{ config(unique_key=['day', 'rank']) }}

with ranked as (

    select
        cast(transacted_at as date) as day,
        trans_id,
        account_id,
        amount,
        row_number() over (
            partition by cast(transacted_at as date) order by amount desc, trans_id asc
        ) as rank
    from {{ ref('stg_transactions') }}

)

select
    day,
    rank,
    trans_id,
    account_id,
    amount
from ranked
where rank <= 3
