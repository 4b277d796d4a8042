// Kernels of a two-layer perceptron: forward, loss, backward, update. Matrices are row-major.

kernel void gather_batch(global const float *all, global float *batch, const int first, const int width)
{
    const int row = get_global_id(1), column = get_global_id(0);
    batch[row * width + column] = all[(first + row) * width + column];
}

kernel void matmul(global const float *a, global const float *b, global float *out, const int inner)
{
    const int row = get_global_id(1), column = get_global_id(0), width = get_global_size(0);
    float sum = 0.0f;
    for (int k = 0; k < inner; k++)
        sum += a[row * inner + k] * b[k * width + column];
    out[row * width + column] = sum;
}

// out = transpose(a) b, with `inner` rows in a and b
kernel void matmul_left_transposed(global const float *a, global const float *b, global float *out, const int inner)
{
    const int row = get_global_id(1), column = get_global_id(0);
    const int height = get_global_size(1), width = get_global_size(0);
    float sum = 0.0f;
    for (int k = 0; k < inner; k++)
        sum += a[k * height + row] * b[k * width + column];
    out[row * width + column] = sum;
}

// out = a transpose(b), with `inner` columns in a and b
kernel void matmul_right_transposed(global const float *a, global const float *b, global float *out, const int inner)
{
    const int row = get_global_id(1), column = get_global_id(0), width = get_global_size(0);
    float sum = 0.0f;
    for (int k = 0; k < inner; k++)
        sum += a[row * inner + k] * b[column * inner + k];
    out[row * width + column] = sum;
}

kernel void add_bias(global float *values, global const float *bias)
{
    values[get_global_id(1) * get_global_size(0) + get_global_id(0)] += bias[get_global_id(0)];
}

kernel void relu(global const float *in, global float *out)
{
    const int i = get_global_id(0);
    out[i] = fmax(in[i], 0.0f);
}

kernel void row_max(global const float *values, global float *out, const int width)
{
    const int row = get_global_id(0);
    float best = values[row * width];
    for (int k = 1; k < width; k++)
        best = fmax(best, values[row * width + k]);
    out[row] = best;
}

kernel void exp_shifted(global float *values, global const float *shift)
{
    const int row = get_global_id(1), i = row * get_global_size(0) + get_global_id(0);
    values[i] = exp(values[i] - shift[row]);
}

kernel void row_sum(global const float *values, global float *out, const int width)
{
    const int row = get_global_id(0);
    float sum = 0.0f;
    for (int k = 0; k < width; k++)
        sum += values[row * width + k];
    out[row] = sum;
}

kernel void divide_rows(global float *values, global const float *divisor)
{
    const int row = get_global_id(1);
    values[row * get_global_size(0) + get_global_id(0)] /= divisor[row];
}

kernel void cross_entropy(global const float *shares, global const int *labels, global float *loss, const int first,
                          const int width)
{
    const int row = get_global_id(0);
    loss[row] = -log(fmax(shares[row * width + labels[first + row]], 1e-12f));
}

// shares become the gradient of the mean loss with respect to the scores
kernel void softmax_gradient(global float *shares, global const int *labels, const int first, const int rows)
{
    const int row = get_global_id(1), column = get_global_id(0), i = row * get_global_size(0) + column;
    shares[i] = (shares[i] - (labels[first + row] == column ? 1.0f : 0.0f)) / rows;
}

kernel void column_sum(global const float *values, global float *out, const int rows)
{
    const int column = get_global_id(0), width = get_global_size(0);
    float sum = 0.0f;
    for (int k = 0; k < rows; k++)
        sum += values[k * width + column];
    out[column] = sum;
}

kernel void relu_gradient(global const float *in, global float *gradient)
{
    const int i = get_global_id(0);
    if (in[i] <= 0.0f)
        gradient[i] = 0.0f;
}

kernel void sgd_update(global float *weights, global const float *gradient, const float rate)
{
    const int i = get_global_id(0);
    weights[i] -= rate * gradient[i];
}

kernel void mean_loss(global const float *loss, global float *out, const int rows)
{
    float sum = 0.0f;
    for (int k = 0; k < rows; k++)
        sum += loss[k];
    out[0] = sum / rows;
}
