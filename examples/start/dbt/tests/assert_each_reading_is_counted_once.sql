select counted.total as count_counted, sent.total as count_sent
from (select sum(count_readings) as total from {{ ref('readings_by_day') }}) as counted
cross join (select count(*) as total from {{ ref('stg_readings') }}) as sent
where counted.total <> sent.total
