{{ config(unique_key=['event_id']) }}

with source as (

    select * from {{ source('silver', 'enriched_clicks') }}

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
        occurred_at
    from source

)

select * from renamed
