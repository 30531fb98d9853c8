{{ config(unique_key=['account_id', 'invoice_id']) }}

with orders as (

    select * from {{ ref('int_order_lines') }}

),

invoices as (

    select
        account_id,
        invoice_id,
        count_if(price >= 0) > 0 as is_purchase,
        coalesce(min(case when price >= 0 then paid_at end), min(paid_at)) as first_paid_at,
        coalesce(max(case when price >= 0 then paid_at end), max(paid_at)) as last_paid_at,
        cast(sum(price) as decimal(14, 2)) as revenue
    from orders
    where paid_at is not null
    group by account_id, invoice_id

),

numbered as (

    select
        *,
        row_number() over (
            partition by account_id, is_purchase order by first_paid_at, invoice_id
        ) as row_number
    from invoices

),

final as (

    select
        account_id,
        invoice_id,
        case
            when not is_purchase then 'refund'
            when row_number = 1 then 'first'
            else 'repeat'
        end as kind,
        first_paid_at,
        last_paid_at,
        revenue
    from numbered

)

select * from final
