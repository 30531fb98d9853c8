-- Fails if an order line is in the ledger twice, or not at all.
with ledger as (

    select
        invoice_id,
        line_item_id,
        count(*) as count_rows
    from {{ ref('reward_ledger') }}
    group by invoice_id, line_item_id

),

orders as (

    select * from {{ ref('stg_orders') }}

)

select
    orders.invoice_id,
    orders.line_item_id,
    ledger.count_rows
from orders
left join ledger
    on
        orders.invoice_id = ledger.invoice_id
        and orders.line_item_id = ledger.line_item_id
where ledger.count_rows is null or ledger.count_rows != 1
