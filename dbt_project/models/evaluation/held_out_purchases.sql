{{ config(materialized='table', enabled=var('hold_out_last_invoice')) }}

with orders as (

    select * from {{ ref('int_order_lines') }}

),

items as (

    select * from {{ ref('stg_items') }}

),

purchases as (

    select
        account_id,
        invoice_id,
        item_id,
        max(created_at) as ordered_at
    from orders
    where
        {{ is_purchase() }}
        and is_user_known
        and account_deleted_at is null
    group by account_id, invoice_id, item_id

),

last_invoices as (

    select
        account_id,
        max_by(invoice_id, struct(ordered_at, invoice_id)) as invoice_id
    from purchases
    group by account_id
    having count(distinct invoice_id) > 1

),

counted as (

    select
        *,
        count(*) over (partition by account_id, item_id) as count_invoices
    from purchases

),

final as (

    select
        counted.account_id,
        counted.invoice_id,
        counted.item_id,
        counted.count_invoices = 1 and items.item_id is not null as is_findable
    from counted
    inner join last_invoices
        on
            counted.account_id = last_invoices.account_id
            and counted.invoice_id = last_invoices.invoice_id
    left join items on counted.item_id = items.item_id

)

select * from final
