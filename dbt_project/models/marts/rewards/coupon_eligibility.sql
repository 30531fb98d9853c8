{{ config(unique_key=['account_id']) }}

with points as (

    select * from {{ ref('reward_points') }}

),

ledger as (

    select * from {{ ref('reward_ledger') }}

),

balances as (

    select
        account_id,
        entered_at,
        sum(points) over (
            partition by account_id order by entered_at
        ) as balance
    from ledger

),

moments as (

    select distinct
        account_id,
        entered_at,
        balance
    from balances

),

crossings as (

    select
        account_id,
        entered_at,
        balance,
        lag(balance, 1, 0) over (
            partition by account_id order by entered_at
        ) as balance_before
    from moments

),

reached as (

    select
        account_id,
        max(entered_at) as reached_at
    from crossings
    where
        balance >= {{ var('coupon_threshold') }}
        and balance_before < {{ var('coupon_threshold') }}
    group by account_id

),

judged as (

    select
        points.*,
        reached.reached_at,
        case
            when points.is_deleted then 'account deleted'
            when points.points >= {{ var('coupon_threshold') }} then 'enough points'
            else 'not enough points'
        end as reason
    from points
    left join reached on points.account_id = reached.account_id

),

final as (

    select
        account_id,
        reason = 'enough points' as is_eligible,
        reason,
        points,
        greatest({{ var('coupon_threshold') }} - points, cast(0 as bigint)) as points_to_go,
        case when reason = 'enough points' then reached_at end as eligible_since,
        case
            when reason = 'enough points'
                then reached_at + interval '{{ var("coupon_days") }}' day
        end as expires_at
    from judged

)

select * from final
