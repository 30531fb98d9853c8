{{ config(unique_key=['invoice_id', 'line_item_id']) }}

with source as (

    select * from {{ source('silver', 'enriched_orders') }}

),

renamed as (

    select
        ---------- ids
        invoice_id,
        line_item_id,
        user_id,
        item_id,

        ---------- text
        item_category as category,

        ---------- numerics
        price,

        ---------- timestamps
        created_at,
        paid_at
    from source

)

select * from renamed
