-- Fails if a pair of items does not exist exactly once in each direction, if support or lift differ
-- between the directions, or if more baskets have both items than have the first.
with affinity as (

    select * from {{ ref('item_affinity') }}

)

select
    one.item_id,
    one.other_item_id,
    count(other.item_id) as count_reversed
from affinity as one
left join affinity as other
    on
        one.item_id = other.other_item_id
        and one.other_item_id = other.item_id
        and one.support = other.support
        and one.lift = other.lift
group by one.item_id, one.other_item_id
having
    count(other.item_id) != 1
    or min(one.support) <= 0
    or max(one.support - one.confidence) > 0
    or max(one.confidence) > 1
