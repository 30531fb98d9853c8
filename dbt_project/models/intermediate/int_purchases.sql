{{ config(unique_key=['invoice_id', 'account_id', 'item_id']) }}

with {% if is_incremental() %}
    affected as (

        {{ changed_keys(ref('int_order_lines'), ['invoice_id']) }}

    ),
{% endif %}

{% if var('hold_out_last_invoice') %}
    held_out as (

        select distinct invoice_id from {{ ref('held_out_purchases') }}

    ),
{% endif %}

orders as (

    {{ rows_of(ref('int_order_lines'), 'affected', ['invoice_id']) }}

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

{{ replacing('final', 'affected', ['invoice_id']) }}
