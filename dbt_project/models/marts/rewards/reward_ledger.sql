{{ config(unique_key=['invoice_id', 'line_item_id', 'entry']) }}

with orders as (

    select * from {{ ref('int_order_lines') }}

),

judged as (

    select
        *,
        {{ points_per_unit('category') }} as points_per_unit,
        case
            when paid_at is null then 'not paid'
            when not is_user_known then 'user unknown'
            when price = 0 then 'free item'
            when price < 0 then 'refund'
            else 'paid'
        end as reason
    from orders

),

rated as (

    select
        *,
        case
            when reason = 'paid'
                then cast(floor(price * points_per_unit) as bigint)
            when reason = 'refund'
                then -cast(floor(-price * points_per_unit) as bigint)
            else cast(0 as bigint)
        end as points
    from judged

),

entries as (

    select
        *,
        case reason
            when 'paid' then 'earned'
            when 'refund' then 'refunded'
            else 'none'
        end as entry,
        coalesce(paid_at, created_at) as entered_at
    from rated

    union all

    -- The points of a deleted account are taken back.
    select
        * except (points, reason),
        'account deleted' as reason,
        -points as points,
        'reversed' as entry,
        account_deleted_at as entered_at
    from rated
    where account_deleted_at is not null and points != 0

),

final as (

    select
        invoice_id,
        line_item_id,
        entry,
        account_id,
        user_id,
        points,
        reason,
        entered_at
    from entries

)

select * from final
