{{ config(unique_key=['day', 'category']) }}

with {% if is_incremental() %}
    affected as (

        {{ changed_keys(ref('stg_orders'), ['cast(paid_at as date) as day']) }}

    ),
{% endif %}

paid as (

    select
        *,
        cast(paid_at as date) as day
    from {{ ref('stg_orders') }}
    where paid_at is not null

),

orders as (

    {{ rows_of('paid', 'affected', ['day']) }}

),

final as (

    select
        day,
        category,
        count_if(price >= 0) as count_lines,
        count(distinct case when price >= 0 then invoice_id end) as count_invoices,
        cast(sum(price) as decimal(14, 2)) as revenue
    from orders
    group by day, category

)

{{ replacing('final', 'affected', ['day']) }}
