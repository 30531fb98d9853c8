{{ config(unique_key=['user_id']) }}

with source as (

    {{ changed_rows(source('silver', 'users_state'), ['id']) }}

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
        deleted_at,

        ---------- booleans
        is_deleted or _is_deleted as _is_deleted
    from source

)

{{ current_rows('renamed') }}
