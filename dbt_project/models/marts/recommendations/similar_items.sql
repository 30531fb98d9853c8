{{ config(unique_key=['item_id', 'similar_item_id']) }}

with neighbours as (

    {{ changed_rows(ref('int_item_neighbours'), ['item_id', 'other_item_id']) }}

),

final as (

    select
        item_id,
        rank,
        other_item_id as similar_item_id,
        count_invoices,
        count_shared_traits,
        case when count_invoices > 0 then 'bought together' else 'alike' end as reason,
        _is_deleted or rank > {{ var('similar_items') }} as _is_deleted
    from neighbours

)

{{ current_rows('final') }}
