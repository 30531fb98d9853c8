{{ config(unique_key=['item_id']) }}

with source as (

    select * from {{ source('silver', 'items_state') }}

),

renamed as (

    select
        ---------- ids
        id as item_id,

        ---------- text
        name,
        category,
        adjective,
        modifier,

        ---------- numerics
        price
    from source
    where not is_deleted

)

select * from renamed
