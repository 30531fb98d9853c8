{{ config(unique_key=['invoice_id']) }}

with accounts as (

    select * from {{ ref('stg_users') }}

),

{% if is_incremental() %}
    changed_accounts as (

        select user_id as account_id from {{ changes_of(ref('stg_users')) }}

    ),

    orders_of_changed_accounts as (

        {{ rows_of(ref('int_order_lines'), 'changed_accounts', ['account_id']) }}

    ),

    affected as (

        {{ changed_keys(ref('int_order_lines'), ['invoice_id']) }}
        union
        select invoice_id from orders_of_changed_accounts

    ),
{% endif %}

orders as (

    {{ rows_of(ref('int_order_lines'), 'affected', ['invoice_id']) }}

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

{{ replacing('final', 'affected', ['invoice_id']) }}
