{{ config(unique_key=['user_id']) }}

with source as (

    select * from {{ source('silver', 'users_state') }}

),

renamed as (

    select
        ---------- ids
        id as user_id,
        coalesce(resolved_id, id) as account_id,

        ---------- text
        first_name,
        last_name,
        email_address,

        ---------- timestamps
        created_at,
        deleted_at
    from source
    where not is_deleted

)

select * from renamed
