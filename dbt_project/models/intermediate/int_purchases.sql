{{ config(unique_key=['invoice_id', 'account_id', 'item_id']) }}

with {% if var('hold_out_last_invoice') %}
    held_out as (

        select distinct invoice_id from {{ ref('held_out_purchases') }}

    ),
{% endif %}

orders as (

    select * from {{ ref('int_order_lines') }}

),

purchases as (

    select orders.* from orders
    {% if var('hold_out_last_invoice') %}
        left anti join held_out on orders.invoice_id = held_out.invoice_id
    {% endif %}
    where {{ is_purchase() }}

),

final as (

    select
        invoice_id,
        account_id,
        item_id,
        bool_or(is_user_known and account_deleted_at is null) as is_account_open
    from purchases
    group by invoice_id, account_id, item_id

)

select * from final
