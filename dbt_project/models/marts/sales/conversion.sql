{{ config(unique_key=['day']) }}

with counted as (

    select
        *,
        cast(occurred_at as date) as day
    from {{ ref('stg_clicks') }}
    where kind in ('view', 'cart', 'purchase') and occurred_at is not null

),

days as (

    select
        day,
        count_if(kind = 'view') as count_views,
        count_if(kind = 'cart') as count_carts,
        count_if(kind = 'purchase') as count_purchases
    from counted
    group by day

),

final as (

    select
        day,
        count_views,
        count_carts,
        count_purchases,
        cast(count_carts / nullif(count_views, 0) as decimal(18, 4)) as view_to_cart,
        cast(count_purchases / nullif(count_carts, 0) as decimal(18, 4)) as cart_to_purchase
    from days

)

select * from final
