{{ config(unique_key=['day', 'site']) }}

select
    cast(measured_at as date) as day,
    coalesce(site, 'unknown') as site,
    count(*) as count_readings,
    min(value) as lowest,
    max(value) as highest,
    round(avg(value), 2) as mean
from {{ ref('stg_readings') }}
group by 1, 2
