{{ config(unique_key=['account_id', 'item_id']) }}

{% set count_wanted = var('recommendations_per_account') + var('spare_recommendations') %}
{% set parts = 1000000000000 %}

with purchases as (

    select * from {{ ref('int_purchases') }}

),

-- A sum of integers is the same in any order. A sum of doubles is not, and a sum of decimals is
-- slow.
neighbours as (

    select
        *,
        cast(cast(confidence as decimal(13, 12)) * {{ parts }} as bigint) as confidence_parts
    from {{ ref('int_item_neighbours') }}

),

items as (

    select * from {{ ref('stg_items') }}

),

pairs as (

    select * from {{ ref('int_item_pairs') }}

),

-- The items of an account are kept in one row, so the following steps need not move them.
accounts as (

    select
        account_id,
        collect_set(item_id) as owned_items
    from purchases
    group by account_id
    having bool_or(is_account_open)

),

owned as (

    select
        account_id,
        owned_items,
        explode(owned_items) as item_id
    from accounts

),

rated as (

    select
        owned.account_id,
        neighbours.other_item_id as item_id,
        sum(neighbours.confidence_parts) as score_parts,
        sum(neighbours.count_shared_traits) as count_shared_traits
    from owned
    inner join neighbours on owned.item_id = neighbours.item_id
    where not array_contains(owned.owned_items, neighbours.other_item_id)
    group by owned.account_id, neighbours.other_item_id

),

rated_and_placed as (

    select
        *,
        row_number() over (
            partition by account_id
            order by
                score_parts desc,
                count_shared_traits desc,
                item_id asc
        ) as rank
    from rated

),

bought as (

    select
        pairs.item_id,
        row_number() over (order by count(*) desc, pairs.item_id asc) as row_number
    from pairs
    inner join items on pairs.item_id = items.item_id
    where pairs.item_id = pairs.other_item_id
    group by pairs.item_id

),

popular as (

    select * from bought
    where row_number <= {{ var('popular_items') }}

),

candidates as (

    select
        account_id,
        item_id,
        score_parts,
        count_shared_traits,
        cast(null as int) as row_number
    from rated_and_placed
    where rank <= {{ count_wanted }}

    union all

    select
        accounts.account_id,
        popular.item_id,
        cast(0 as bigint) as score_parts,
        cast(0 as bigint) as count_shared_traits,
        popular.row_number
    from accounts
    cross join popular
    where not array_contains(accounts.owned_items, popular.item_id)

),

judged as (

    select
        account_id,
        item_id,
        sum(score_parts) as score_parts,
        case
            when sum(score_parts) > 0 then 'bought together'
            when sum(count_shared_traits) > 0 then 'alike'
            else 'popular'
        end as reason,
        sum(count_shared_traits) as count_shared_traits,
        min(row_number) as row_number
    from candidates
    group by account_id, item_id

),

ranked as (

    select
        *,
        row_number() over (
            partition by account_id
            order by
                score_parts desc,
                count_shared_traits desc,
                case when reason = 'popular' then row_number end asc,
                item_id asc
        ) as rank
    from judged

),

final as (

    select
        account_id,
        rank,
        item_id,
        score_parts / cast({{ parts }} as double) as score,
        reason
    from ranked
    where rank <= {{ count_wanted }}

)

select * from final
