//! A view of a matrix.

/// `rows` × `cols` numbers somewhere in a slice; element (i, j) is `data[i·row_stride + j·col_stride]`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a> Matrix<'a> {
    /// Row by row, without gaps. Panics if `data` is shorter.
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Matrix<'a> {
        Matrix::strided(data, rows, cols, cols, 1)
    }

    /// With any strides. Panics if an element would be outside `data`.
    pub fn strided(
        data: &'a [f32],
        rows: usize,
        cols: usize,
        row_stride: usize,
        col_stride: usize,
    ) -> Matrix<'a> {
        if rows > 0 && cols > 0 {
            let last = (rows - 1) * row_stride + (cols - 1) * col_stride;
            assert!(last < data.len(), "a matrix reaches beyond its data");
        }
        Matrix {
            data,
            rows,
            cols,
            row_stride,
            col_stride,
        }
    }

    /// Rows and columns exchanged, without a copy.
    pub fn transposed(self) -> Matrix<'a> {
        Matrix {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    pub(crate) fn data(&self) -> &'a [f32] {
        self.data
    }

    pub(crate) fn row_stride(&self) -> usize {
        self.row_stride
    }

    pub(crate) fn col_stride(&self) -> usize {
        self.col_stride
    }

    /// Element (i, j).
    pub fn at(&self, i: usize, j: usize) -> f32 {
        self.data[i * self.row_stride + j * self.col_stride]
    }
}
