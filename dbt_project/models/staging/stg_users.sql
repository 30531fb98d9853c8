with source as (

    select * from {{ source('silver', 'users') }}

),

renamed as (

    select
        ---------- ids
        id as user_id,

        ---------- booleans
        deleted_at is not null as is_deleted,

        ---------- timestamps
        created_at
    from source

)

select * from renamed
