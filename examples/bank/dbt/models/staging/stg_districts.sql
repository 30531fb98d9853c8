{{ config(unique_key='district_id') }}

select
    district_id,
    name,
    region
from {{ source('silver', 'districts_state') }}
where not is_deleted
