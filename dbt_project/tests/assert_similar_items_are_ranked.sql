-- Fails if the ranks of an item are not 1, 2, 3, or if it has the same similar item twice.
with similar_items as (

    select * from {{ ref('similar_items') }}

)

select
    item_id,
    count(*) as count_rows
from similar_items
group by item_id
having
    count(*) != count(distinct rank)
    or count(*) != max(rank)
    or count(*) != count(distinct similar_item_id)
