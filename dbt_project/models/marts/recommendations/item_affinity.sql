{{ config(unique_key=['item_id', 'other_item_id']) }}

with pairs as (

    select * from {{ ref('int_item_pairs') }}

),

items as (

    select * from {{ ref('stg_items') }}

),

baskets as (

    select count(distinct pairs.invoice_id) as count_invoices
    from pairs
    inner join items on pairs.item_id = items.item_id

),

counted as (

    select
        item_id,
        other_item_id,
        count(*) as count_invoices
    from pairs
    group by item_id, other_item_id

),

bought as (

    select
        counted.item_id,
        items.name,
        counted.count_invoices
    from counted
    inner join items on counted.item_id = items.item_id
    where counted.item_id = counted.other_item_id

),

final as (

    select
        counted.item_id,
        counted.other_item_id,
        one.name as item_name,
        other.name as other_item_name,
        counted.count_invoices,
        cast(counted.count_invoices as double) / baskets.count_invoices as support,
        cast(counted.count_invoices as double) / one.count_invoices as confidence,
        cast(counted.count_invoices * baskets.count_invoices as double)
        / (one.count_invoices * other.count_invoices) as lift
    from counted
    inner join bought as one on counted.item_id = one.item_id
    inner join bought as other on counted.other_item_id = other.item_id
    cross join baskets
    where counted.item_id != counted.other_item_id

)

select * from final
