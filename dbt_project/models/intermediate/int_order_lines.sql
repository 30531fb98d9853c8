{{ config(unique_key=['invoice_id', 'line_item_id']) }}

with users as (

    select * from {{ ref('stg_users') }}

),

{% if is_incremental() %}
    changed_users as (

        {{ changed_keys(ref('stg_users'), ['user_id', 'account_id']) }}

    ),

    changed_accounts as (

        select user_id as account_id from changed_users

    ),

    -- Includes users merged into a changed user, which may be deleted now.
    merged_users as (

        {{ rows_of(ref('stg_users'), 'changed_accounts', ['account_id']) }}

    ),

    affected_users as (

        select user_id from changed_users
        union
        select user_id from merged_users

    ),

    orders_of_affected_users as (

        {{ rows_of(ref('stg_orders'), 'affected_users', ['user_id']) }}

    ),

    affected as (

        {{ changed_keys(ref('stg_orders'), ['invoice_id', 'line_item_id']) }}
        union
        select
            invoice_id,
            line_item_id
        from orders_of_affected_users

    ),
{% endif %}

orders as (

    {{ rows_of(ref('stg_orders'), 'affected', ['invoice_id', 'line_item_id']) }}

),

final as (

    select
        orders.invoice_id,
        orders.line_item_id,
        orders.user_id,
        coalesce(users.account_id, orders.user_id) as account_id,
        orders.item_id,
        orders.category,
        orders.price,
        orders.created_at,
        orders.paid_at,
        users.user_id is not null as is_user_known,
        accounts.deleted_at as account_deleted_at
    from orders
    left join users on orders.user_id = users.user_id
    left join users as accounts on users.account_id = accounts.user_id

)

{{ replacing('final', 'affected', ['invoice_id', 'line_item_id']) }}
