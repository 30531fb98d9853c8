{{ config(unique_key=['invoice_id']) }}

with accounts as (

    select * from {{ ref('stg_users') }}

),

orders as (

    select * from {{ ref('int_order_lines') }}

),

invoices as (

    select
        invoice_id,
        min(account_id) as account_id,
        max(paid_at) as paid_at,
        cast(sum(price) as decimal(14, 2)) as amount,
        count(*) as count_lines
    from orders
    group by invoice_id
    having count_if(paid_at is null) = 0

),

final as (

    select
        invoices.invoice_id,
        invoices.account_id,
        trim(accounts.email_address) as email_address,
        accounts.first_name,
        accounts.last_name,
        invoices.paid_at,
        invoices.amount,
        invoices.count_lines
    from invoices
    inner join accounts on invoices.account_id = accounts.user_id
    where
        accounts.deleted_at is null
        and (
            trim(accounts.email_address) rlike '^[^@ ]+@[^@ ]+[.][^@ ]+$'
            or {{ is_protected('accounts.email_address') }}
        )

)

select * from final
