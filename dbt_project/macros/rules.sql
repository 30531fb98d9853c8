{# The points that a line of a category earns per currency unit, by the rules in dbt_project.yml. #}
{% macro points_per_unit(category) %}
    cast(
        {{ var("points_per_currency_unit") }} * case {{ category }}
            {% for name, multiplier in var("category_multipliers").items() %}
                when '{{ name }}' then {{ multiplier }}
            {% endfor %}
            else 1
        end as decimal(9, 4)
    )
{% endmacro %}


{# The tier for a number of points, by the rules in dbt_project.yml. The lowest is `basic`. #}
{% macro tier(points) %}
    case
        {% for name, least in var("tiers").items() | sort(attribute="1", reverse=true) %}
            when {{ points }} >= {{ least }} then '{{ name }}'
        {% endfor %}
        else 'basic'
    end
{% endmacro %}


{# Whether an order line is a purchase for recommendations: it has an item and is not a refund. #}
{% macro is_purchase() %}item_id is not null and coalesce(price, 0) >= 0{% endmacro %}
