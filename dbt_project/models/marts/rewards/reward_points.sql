with ledger as (

    select * from {{ ref('reward_ledger') }}

),

users as (

    select * from {{ ref('stg_users') }}

),

totals as (

    select
        user_id,
        sum(points) as points,
        count_if(reason = 'earned') as count_earning_lines,
        max(paid_at) as last_paid_at
    from ledger
    group by user_id

),

joined as (

    select
        totals.user_id,
        case when users.is_deleted then cast(0 as bigint) else totals.points end as points,
        totals.count_earning_lines,
        totals.last_paid_at,
        users.is_deleted
    from totals
    inner join users on totals.user_id = users.user_id

)

select * from joined
