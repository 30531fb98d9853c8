with points as (

    select * from {{ ref('reward_points') }}

),

judged as (

    select
        user_id,
        points,
        case
            when is_deleted then 'account deleted'
            when points >= {{ var('coupon_threshold') }} then 'enough points'
            else 'not enough points'
        end as reason
    from points

),

final as (

    select
        user_id,
        reason = 'enough points' as is_eligible,
        reason,
        points,
        greatest({{ var('coupon_threshold') }} - points, cast(0 as bigint)) as points_to_go
    from judged

)

select * from final
