-- Fails if the ranks of an account are not 1, 2, 3, or if an item is recommended twice or owned.
with recommendations as (

    select * from {{ ref('user_recommendations') }}

),

owned as (

    select distinct
        account_id,
        item_id
    from {{ ref('int_purchases') }}

)

select
    recommendations.account_id,
    count(*) as count_rows,
    count(owned.item_id) as count_owned
from recommendations
left join owned
    on
        recommendations.account_id = owned.account_id
        and recommendations.item_id = owned.item_id
group by recommendations.account_id
having
    count(*) != count(distinct recommendations.rank)
    or count(*) != max(recommendations.rank)
    or count(*) != count(distinct recommendations.item_id)
    or count(owned.item_id) > 0
