{{ config(unique_key=['day', 'site']) }}

select
    cast(measured_at as date) as day,
    coalesce(site, 'unknown') as site,
    count(*) as count_readings,
    min(value) as lowest,
    max(value) as highest,
    sum(value) / count(*) as mean
from {{ ref('stg_readings') }}
group by 1, 2
