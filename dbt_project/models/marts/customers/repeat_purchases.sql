{{ config(unique_key=['month']) }}

with paid as (

    select
        *,
        cast(date_trunc('month', first_paid_at) as date) as month
    from {{ ref('int_paid_invoices') }}

),

final as (

    select
        month,
        count_if(kind = 'first') as count_first_purchases,
        count_if(kind = 'repeat') as count_repeat_purchases,
        cast(coalesce(sum(case when kind = 'first' then revenue end), 0) as decimal(14, 2))
            as first_revenue,
        cast(coalesce(sum(case when kind = 'repeat' then revenue end), 0) as decimal(14, 2))
            as repeat_revenue,
        cast(coalesce(sum(case when kind = 'refund' then revenue end), 0) as decimal(14, 2))
            as refunds
    from paid
    group by month

)

select * from final
