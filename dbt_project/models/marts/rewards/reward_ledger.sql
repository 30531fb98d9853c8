{{
    config(
        materialized='incremental',
        incremental_strategy='merge',
        unique_key=['invoice_id', 'line_item_id'],
        on_schema_change='fail'
    )
}}

with orders as (

    select * from {{ ref('stg_orders') }} as orders
    {% if is_incremental() %}
        -- Also order lines that were completed or sent again since: their batch is a new one.
        where
            orders.silver_batch
            > (select coalesce(max(seen.silver_batch), -1) from {{ this }} as seen)
    {% endif %}

),

judged as (

    select
        *,
        case
            when paid_at is null then 'not paid'
            when not is_user_known then 'user unknown'
            when price <= 0 then 'free item'
            else 'earned'
        end as reason
    from orders

),

final as (

    select
        invoice_id,
        line_item_id,
        user_id,
        price,
        case
            when reason = 'earned'
                then cast(floor(price * {{ var('points_per_currency_unit') }}) as bigint)
            else cast(0 as bigint)
        end as points,
        reason,
        paid_at,
        silver_batch
    from judged

)

select * from final
