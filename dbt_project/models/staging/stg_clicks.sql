{{ config(unique_key=['event_id']) }}

with source as (

    {{ changed_rows(source('silver', 'enriched_clicks'), ['event_id']) }}

),

renamed as (

    select
        ---------- ids
        event_id,
        user_id,
        item_id,

        ---------- text
        kind,

        ---------- timestamps
        occurred_at,

        ---------- booleans
        _is_deleted
    from source

)

{{ current_rows('renamed') }}
