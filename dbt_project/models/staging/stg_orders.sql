{{ config(unique_key=['invoice_id', 'line_item_id']) }}

with source as (

    {{ changed_rows(
        source('silver', 'enriched_orders'), ['invoice_id', 'line_item_id']
    ) }}

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
        paid_at,

        ---------- booleans
        _is_deleted
    from source

)

{{ current_rows('renamed') }}
