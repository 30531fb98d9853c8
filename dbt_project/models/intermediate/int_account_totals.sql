{{ config(unique_key=['account_id']) }}

with invoices as (

    select * from {{ ref('int_paid_invoices') }}

),

users as (

    select * from {{ ref('stg_users') }}

),

totals as (

    select
        account_id,
        min(case when kind != 'refund' then first_paid_at end) as first_paid_at,
        max(case when kind != 'refund' then last_paid_at end) as last_paid_at,
        count_if(kind != 'refund') as count_invoices,
        cast(sum(revenue) as decimal(14, 2)) as revenue
    from invoices
    group by account_id

),

accounts as (

    select
        account_id,
        count(*) as count_users,
        count_if(user_id = account_id and deleted_at is not null) > 0 as is_deleted
    from users
    group by account_id

),

final as (

    select
        totals.account_id,
        coalesce(accounts.count_users, cast(0 as bigint)) as count_users,
        totals.first_paid_at,
        totals.last_paid_at,
        totals.count_invoices,
        totals.revenue,
        coalesce(accounts.is_deleted, false) as is_deleted
    from totals
    left join accounts on totals.account_id = accounts.account_id

)

select * from final
