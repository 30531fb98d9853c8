{{ config(unique_key=['day', 'category']) }}

with paid as (

    select
        invoice_id,
        price,
        cast(paid_at as date) as day,
        coalesce(category, 'unknown') as category
    from {{ ref('stg_orders') }}
    where paid_at is not null

),

final as (

    select
        day,
        category,
        count_if(price >= 0) as count_lines,
        count(distinct case when price >= 0 then invoice_id end) as count_invoices,
        cast(sum(price) as decimal(14, 2)) as revenue
    from paid
    group by day, category

)

select * from final
