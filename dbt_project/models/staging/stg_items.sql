with source as (

    select * from {{ source('silver', 'items') }}

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

)

select * from renamed
