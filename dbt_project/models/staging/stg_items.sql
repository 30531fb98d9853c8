{{ config(unique_key=['item_id']) }}

with source as (

    {{ changed_rows(source('silver', 'items_state'), ['id']) }}

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
        price,

        ---------- booleans
        is_deleted or _is_deleted as _is_deleted
    from source

)

{{ current_rows('renamed') }}
