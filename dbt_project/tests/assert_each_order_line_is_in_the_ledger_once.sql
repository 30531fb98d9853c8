-- Fails if an order line is not in the ledger, or has more than one entry besides a reversal.
with ledger as (

    select
        invoice_id,
        line_item_id,
        count(*) as count_entries
    from {{ ref('reward_ledger') }}
    where entry != 'reversed'
    group by invoice_id, line_item_id

),

orders as (

    select * from {{ ref('stg_orders') }}

)

select
    orders.invoice_id,
    orders.line_item_id,
    ledger.count_entries
from orders
left join ledger
    on
        orders.invoice_id = ledger.invoice_id
        and orders.line_item_id = ledger.line_item_id
where ledger.count_entries is null or ledger.count_entries != 1
