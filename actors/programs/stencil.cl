// Heat on a plate of CELLS x CELLS cells with insulated edges, by an explicit finite-volume scheme.

#define AT(row, column) ((row) * CELLS + (column))

// heat that crosses the side between a cell and its right neighbour, per time step
kernel void flux_right(global const float *heat, global const float *conductance, global float *flux)
{
    const int column = get_global_id(0), row = get_global_id(1);
    if (column < CELLS - 1)
        flux[AT(row, column)] = conductance[AT(row, column)] * (heat[AT(row, column)] - heat[AT(row, column + 1)]);
}

kernel void flux_down(global const float *heat, global const float *conductance, global float *flux)
{
    const int column = get_global_id(0), row = get_global_id(1);
    if (row < CELLS - 1)
        flux[AT(row, column)] = conductance[AT(row, column)] * (heat[AT(row, column)] - heat[AT(row + 1, column)]);
}

kernel void insulate_right_edge(global float *flux)
{
    flux[AT(get_global_id(0), CELLS - 1)] = 0.0f;
}

kernel void insulate_lower_edge(global float *flux)
{
    flux[AT(CELLS - 1, get_global_id(0))] = 0.0f;
}

kernel void divergence(global const float *right, global const float *down, global float *out)
{
    const int column = get_global_id(0), row = get_global_id(1);
    float leaving = right[AT(row, column)] + down[AT(row, column)];
    if (column > 0)
        leaving -= right[AT(row, column - 1)];
    if (row > 0)
        leaving -= down[AT(row - 1, column)];
    out[AT(row, column)] = leaving;
}

kernel void advance(global float *heat, global const float *leaving)
{
    const int i = get_global_id(0);
    heat[i] -= leaving[i];
}

kernel void row_residual(global const float *leaving, global float *out)
{
    const int row = get_global_id(0);
    float most = 0.0f;
    for (int column = 0; column < CELLS; column++)
        most = fmax(most, fabs(leaving[AT(row, column)]));
    out[row] = most;
}

kernel void residual(global const float *rows, global float *out)
{
    float most = 0.0f;
    for (int row = 0; row < CELLS; row++)
        most = fmax(most, rows[row]);
    out[0] = most;
}

kernel void row_energy(global const float *heat, global float *out)
{
    const int row = get_global_id(0);
    float sum = 0.0f;
    for (int column = 0; column < CELLS; column++)
        sum += heat[AT(row, column)];
    out[row] = sum;
}

kernel void energy(global const float *rows, global float *out)
{
    float sum = 0.0f;
    for (int row = 0; row < CELLS; row++)
        sum += rows[row];
    out[1] = sum;
}
