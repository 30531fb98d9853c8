{{ config(unique_key=['account_id']) }}

with users as (

    select * from {{ ref('stg_users') }}

),

ledger as (

    select * from {{ ref('reward_ledger') }}

),

totals as (

    select
        account_id,
        sum(points) as points,
        count_if(entry = 'earned') as count_earning_lines,
        max(case when entry = 'earned' then entered_at end) as last_paid_at
    from ledger
    group by account_id
    having count_if(reason != 'user unknown') > 0

),

final as (

    select
        totals.account_id,
        totals.points,
        case
            when users.deleted_at is not null then 'closed'
            else {{ tier('totals.points') }}
        end as tier,
        totals.count_earning_lines,
        totals.last_paid_at,
        users.deleted_at is not null as is_deleted
    from totals
    left join users on totals.account_id = users.user_id

)

select * from final
