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
        item_category,

        ---------- numerics
        price,
        silver_batch,

        ---------- booleans
        `user` is not null and not `user`.is_deleted as is_user_known,

        ---------- timestamps
        created_at,
        paid_at
    from source

)

select * from renamed
