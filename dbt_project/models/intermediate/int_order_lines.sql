{{ config(unique_key=['invoice_id', 'line_item_id']) }}

with users as (

    select * from {{ ref('stg_users') }}

),

orders as (

    select * from {{ ref('stg_orders') }}

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

select * from final
